# ruff: noqa: E501, SIM905
"""The words of generated vaults: common real words first, then invented ones from syllables, as in any long tail."""

from itertools import accumulate
from random import Random

COMMON = {
    "en": """the of and to in a is that for it was on are as with at be this have from or one had by word but not what all
    were we when your can said there use an each which she do how their if will up other about out many then them these so
    some her would make like him into time has look two more write go see number no way could people my than first water
    been call who oil its now find long down day did get come made may part over new sound take only little work know place
    year live me back give most very after thing our just name good sentence man think say great where help through much
    before line right too mean old any same tell boy follow came want show also around form three small set put end does
    another well large must big even such because turn here why ask went men read need land different home us move try kind
    hand picture again change off play spell air away animal house point page letter mother answer found study still learn
    should world meeting project plan budget review question idea note draft team garden kitchen train river market season
    coffee bread paper window table street summer winter morning evening music story habit lesson value method theory
    result source reason memory energy signal network system process design practice pattern history culture language
    science nature travel health family friend doctor teacher student office contract invoice report deadline decision
    feedback release problem solution experiment measure weather library museum bicycle harbour mountain forest island""",
    "de": """der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er hat
    dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber vor zur bis mehr durch
    man sein wurde sei können gegen schon wenn habe seine ihre unter wir soll ich eines gibt muss während Jahr Zeit Frage
    Arbeit Haus Straße Stadt Übung Gespräch Lösung Größe Äpfel Öffnung Schlüssel Müller Küche Garten Bücher Wörter Idee
    Plan Entscheidung Sitzung Entwurf Rechnung Termin Ergebnis Überblick Geschichte Sprache Gesundheit Gewohnheit Natur
    Wasser Brot Kaffee Fenster Tisch Winter Sommer Frühling Herbst Morgen Abend Musik Bild Brief Schule Lehrer Freund""",
    "fr": """le de un être et à il avoir ne je son que se qui ce dans en du elle au pour pas vous par sur faire plus dire me
    on mon lui nous comme mais pouvoir avec tout y aller voir bien où sans tu ou leur homme si deux mari moi vouloir te
    femme venir quand grand celui notre devoir là jour prendre même votre rien petit encore aussi quelque dont mer trouver
    donner temps ça peu falloir sous parler alors chose mettre savoir passer autre après regarder toujours puis jamais cela
    aimer non heure croire cent monde donc enfin appeler moment école été forêt château crème leçon français garçon réunion
    idée décision équipe marché saison café pain fenêtre rivière musée île mémoire méthode théorie résultat problème""",
    "ru": """и в не на я быть он с что а по это она этот к но они мы весь который из у то за свой ещё так от о для год
    когда только один такой себя мочь время человек говорить знать стать дело жизнь день рука раз работа слово место лицо
    друг глаз вопрос дом сторона страна мир случай голова ребёнок сила конец вид система часть город отношение женщина
    деньги земля машина вода отец проблема час право нога решение дверь образ история власть закон война бог голос тысяча
    книга возможность результат ночь стол имя область статья число компания народ жена группа развитие процесс суд условие
    средство начало свет пора путь душа уровень форма связь минута улица вечер качество мысль дорога мать действие заметка
    встреча план бюджет черновик сад кухня поезд река рынок хлеб кофе бумага окно зима лето утро музыка привычка урок""",
    "zh": """我们 他们 什么 没有 知道 时间 问题 工作 生活 朋友 今天 明天 昨天 学习 世界 中国 语言 文化 历史 方法 系统 设计 项目 计划 会议 笔记
    记录 想法 决定 结果 原因 健康 家庭 老师 学生 学校 城市 花园 厨房 火车 河流 市场 季节 咖啡 面包 纸张 窗户 桌子 街道 夏天 冬天 早上 晚上
    音乐 故事 习惯 课程 价值 理论 记忆 能量 网络 过程 实践 模式 科学 自然 旅行 医生 合同 报告 反馈 发布 实验 测量 天气 图书馆 博物馆 自行车
    的 是 在 了 和 有 不 这 也 就 都 要 可以 因为 所以 但是 如果 虽然 已经 非常 需要 开始 继续 完成 重要 简单 复杂 不同 一样 第一 最后""",
}
SYLLABLES = {
    "en": "ba be bri ca cal co cra da del di do dra el en fa fin flo ga gen go gra ha hol in ka ki la len li lo ma mer mi mo "
    "na nel ni no or pa pel pi pla po ra ren ri ro sa sel si so sta ta ten ti to tra ul va ven vi vo wa wen zo",
    "de": "ba ber bü da den dr ei fel fä ge gel gra hau hei hö ke kel krä la lein li lö ma mer mö nä nau ne ra rei rü sa "
    "schen schle spä sta stei tau ten tra tür vor wa wei wer wö za zei zel",
    "fr": "ba bé bou ca cé cha cou dé di dou é fa fé fleu ga gé gue hau in jou la lé li lou ma mé moi na né noi pa pé plu "
    "ra ré ri rou sa sé si sou ta té ti tou va vé vi vou",
    "ru": "ба бе бо ва ве во га го да де до жа же за зе и ка ко кра ла ле ло лю ма ме мо на не но па пе по пра ра ре ро са се "
    "со ста та те то тра у фа хо це ча че ша ще я",
    "zh": "山 水 火 木 金 土 日 月 星 云 风 雨 雪 花 草 树 林 江 海 湖 石 田 路 桥 门 书 笔 墨 画 琴 棋 茶 酒 米 麦 豆 鱼 鸟 马 牛 羊 春 夏 秋 "
    "冬 东 西 南 北 高 低 长 短 大 小 新 旧 明 暗 清 白 红 青 黄 黑 心 思 意 情 理 法 道 德 礼 义 信 和 平 安 乐 美",
}
TAIL = {"en": 24000, "de": 5000, "fr": 5000, "ru": 6000, "zh": 5000}

HEADINGS = {
    "en": (
        "Background",
        "Next steps",
        "Open questions",
        "What we know",
        "Decisions",
        "References",
        "Log",
        "Ideas",
        "Summary",
    ),
    "de": ("Hintergrund", "Nächste Schritte", "Offene Fragen", "Überblick", "Quellen", "Ideen"),
    "fr": ("Contexte", "Étapes suivantes", "Questions ouvertes", "Résumé", "Références", "Idées"),
    "ru": ("Введение", "Следующие шаги", "Вопросы", "Итоги", "Источники", "Идеи"),
    "zh": ("背景", "下一步", "问题", "总结", "参考", "想法"),
}
FIRST = """Ana Béla Chloé Dmitri Elif François Grace Håkon Inès Jörg Katarzyna Liam Mónica Nils Olga Priya Quentin Renée
Søren Tomáš Uma Vera Wei Xóchitl Yuki Zoë Иван Мария Ольга Пётр 伟 芳 娜 敏 静""".split()
LAST = """Adams Bianchi Čapek Dvořák Eriksson Fernández García Hansen Ivanova Jansen Kowalska Łukasz Müller Nguyễn
O'Brien Petrov Quiroga Rossi Şahin Tanaka Ulrich Vaszary Weiß Yılmaz Žižek Кузнецов Смирнова 王 李 张 陈""".split()
EMOJI = """🌱 📌 🚀 💡 📚 🍞 🧠 🏔️ ✅ 🎯 👩\u200d🍳 🗂️""".split()
TAGS = """project project/active project/done area/health area/home area/work/clients status/draft status/final
type/book type/article inbox 读书 读书/小说 идея идея/проект journal/daily rezept review-later 2024/q1
recipe/sourdough""".split()


class Words:
    """The vocabulary of one language, drawn as people use words: a few all the time, most hardly ever."""

    def __init__(self, language: str, seed: int) -> None:
        chance = Random(f"{language}-{seed}")
        syllables = SYLLABLES[language].split()
        invented = {"".join(chance.choices(syllables, k=chance.choice((2, 2, 3, 3, 4)))) for _ in range(TAIL[language])}
        common = list(dict.fromkeys(COMMON[language].split()))
        tail = sorted(invented - set(common))
        chance.shuffle(tail)
        self.words = common + tail
        self.weights = list(accumulate((rank + 3) ** -1.15 for rank in range(len(self.words))))
        self.telling = [word for word in self.words if len(word) > (1 if language == "zh" else 4)]
        self.blank = "" if language == "zh" else " "
        self.stop = "。" if language == "zh" else "."
        self.headings = HEADINGS[language]
        self.size = 5.0 if language == "zh" else 11.0 if language == "ru" else 5.5  # bytes a word takes, with its blank

    def draw(self, chance: Random, count: int) -> list[str]:
        return chance.choices(self.words, cum_weights=self.weights, k=count)

    def title(self, chance: Random) -> str:
        count, most = chance.choice((1, 2, 2, 3, 3)), len(self.telling)
        text = self.blank.join(self.telling[int(most * chance.random() ** 5)] for _ in range(count))
        return text[0].upper() + text[1:]
